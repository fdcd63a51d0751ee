#include "words.h"

#include <utf8proc.h>

namespace clover {

CharacterKind kind_of_unicode(uint32_t code) {
    if (code == 0x85) return CharacterKind::space;
    switch (utf8proc_category(utf8proc_int32_t(code))) {
        case UTF8PROC_CATEGORY_ZS: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP: return CharacterKind::space;
        case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
            return CharacterKind::letter;
        case UTF8PROC_CATEGORY_PC: case UTF8PROC_CATEGORY_PD: case UTF8PROC_CATEGORY_PS: case UTF8PROC_CATEGORY_PE: case UTF8PROC_CATEGORY_PI:
        case UTF8PROC_CATEGORY_PF: case UTF8PROC_CATEGORY_PO: case UTF8PROC_CATEGORY_SM: case UTF8PROC_CATEGORY_SC: case UTF8PROC_CATEGORY_SK:
        case UTF8PROC_CATEGORY_SO: case UTF8PROC_CATEGORY_CC: return CharacterKind::punctuation;
        default: return CharacterKind::other;
    }
}

}  // namespace clover
