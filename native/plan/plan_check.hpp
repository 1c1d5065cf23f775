// Owns: the judgement of a finished plan: a sweep over time that keeps the places in use and finds any two that
// collide. Must not know: who made the plan, or any structure that planners share: a check by the same code would
// repeat its mistakes.
#pragma once

#include "plan/plan_item.hpp"

namespace tensormem {

// Whether every item has a place within [0, height), and no two that live at once share any of it.
bool plan_is_sound(const PlanItems& items, const Offsets& offsets, std::int64_t height);

}  // namespace tensormem
