#include "../optim/loss_scale.h"

#include <doctest/doctest.h>

using namespace clover;

TEST_SUITE("loss scale") {
    TEST_CASE("doubles after a window without overflow, counted anew from each") {
        const LossScaleConfig c{.initial = 8, .window = 3, .hysteresis = 1};
        LossScale s(c);
        for (int i = 0; i < 2; i++) s.step(c);
        CHECK(s.value == 8);
        s.step(c);
        CHECK(s.value == 16);
        for (int i = 0; i < 2; i++) s.step(c);
        s.overflow();
        CHECK(s.value == 8);
        for (int i = 0; i < 2; i++) s.step(c);
        CHECK(s.value == 8);
        s.step(c);
        CHECK(s.value == 16);
        CHECK(s.skipped == 1);
    }
    TEST_CASE("hysteresis: the first overflow of a window is let pass, those after it are not, until a window is clean") {
        const LossScaleConfig c;
        LossScale s(c);
        s.overflow();
        CHECK(s.value == 4096);
        s.overflow();
        CHECK(s.value == 2048);
        s.overflow();
        CHECK(s.value == 1024);
        for (int i = 0; i < 500; i++) s.step(c);
        CHECK(s.value == 2048);
        s.overflow();
        CHECK(s.value == 2048);
        s.overflow();
        CHECK(s.value == 1024);
        CHECK(s.skipped == 5);
    }
    TEST_CASE("never below 1, never above 2^24") {
        const LossScaleConfig c{.initial = 2, .window = 1, .hysteresis = 1};
        LossScale s(c);
        for (int i = 0; i < 5; i++) s.overflow();
        CHECK(s.value == 1);
        for (int i = 0; i < 40; i++) s.step(c);
        CHECK(s.value == 0x1p24);
    }
}
