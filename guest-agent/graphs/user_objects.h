// SPDX-License-Identifier: Apache-2.0
// The program's own objects that graphs keep alive (cuUserObject*): a count of references, and a
// function of the program that runs when the last is released. Knows no graph.
//
// Any thread; one lock of its own, which may be taken inside the graphs' lock. The program's
// functions run without any lock.
#pragma once

#include <cstdint>
#include <map>

#include "abi/cuda_graph.h"

namespace sluice::graphs {

// How many references something holds on each object.
using UserReferences = std::map<CUuserObject, uint64_t>;

// Adds references for each object that is alive.
void retain_user_objects(const UserReferences& references);
// Releases them. Not under the graphs' lock: the last one calls the program's function.
void release_user_objects(const UserReferences& references);

bool valid_reference_count(unsigned count);  // 1 to INT_MAX at a time
bool is_user_object(CUuserObject object);
// The caller's references become somebody else's: false if it has fewer.
bool owns_references(CUuserObject object, unsigned count);

}  // namespace sluice::graphs
