# `make cuda-report`: registers, shared memory, spills and theoretical occupancy of every kernel on every architecture, as a table.
#   awk -f report.awk launches.tsv kernels.tsv
# launches.tsv: kernel, threads of a block, bytes of dynamic shared memory (count_traffic.cpp); kernels.tsv: what ptxas said (kernels.awk).
#
# Occupancy is the share of a multiprocessor's warps that can be resident: blocks are limited by registers (65536, handed out to warps in
# units of 256), by shared memory (1 KiB more per block for the system), by 32 blocks and by 64 warps (48 on sm_86 and sm_89).
BEGIN {
    FS = "\t"
    printf "%-86s %-7s %9s %7s %7s %8s %9s\n", "kernel", "arch", "registers", "spilled", "threads", "shared", "occupancy"
}
FNR == NR {
    before = $1 in shapes ? shapes[$1] "," : ""
    shapes[$1] = before $2 " " $3
    next
}
function up(x, unit) { return int((x + unit - 1) / unit) * unit }
function least(a, b) { return a < b ? a : b }
function occupancy(arch, registers, threads, shared,    number, warps, per_block, blocks) {
    number = substr(arch, 4) + 0
    warps = number == 86 || number == 89 ? 48 : 64
    per_block = up(threads, 32) / 32
    blocks = least(32, int(warps / per_block))
    blocks = least(blocks, int(65536 / (up(registers * 32, 256) * per_block)))
    blocks = least(blocks, int((number >= 90 ? 228 : number == 80 ? 164 : 100) * 1024 / up(shared + 1024, 128)))
    return 100 * blocks * per_block / warps
}
# The name without return type, namespaces and parameters, as the harness gives it.
function short(name,    i, c, depth, begin) {
    gsub(/\(anonymous namespace\)::/, "", name)
    for (i = 1; i <= length(name); i++) {
        c = substr(name, i, 1)
        if (c == "<") depth++
        if (c == ">") depth--
        if (depth > 0) continue
        if (c == "(") return substr(name, begin + 1, i - begin - 1)
        if (c == " " || c == ":") begin = i
    }
    return substr(name, begin + 1)
}
{
    name = short($1)
    if (!(name in shapes)) {
        printf "%-86s %-7s %9d %7d %7s %8s %9s\n", name, $2, $3, $5, "-", "-", "-"
        next
    }
    n = split(shapes[name], each, ",")
    for (i = 1; i <= n; i++) {
        split(each[i], shape, " ")
        printf "%-86s %-7s %9d %7d %7d %8d %8.0f%%\n", name, $2, $3, $5, shape[1], shape[2] + $6, occupancy($2, $3, shape[1], shape[2] + $6)
    }
}
