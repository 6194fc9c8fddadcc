// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/graphs/user_objects.h"

#include <memory>
#include <mutex>
#include <unordered_set>

#include "guest-agent/graphs/driver.h"

struct CUuserObject_st {
  void* data;
  CUhostFn destroy;
  uint64_t count;
};

namespace sluice::graphs {

namespace {

struct Objects {
  std::mutex mutex;
  std::unordered_set<CUuserObject> live;
};
Objects& objects() {
  static auto* it = new Objects;
  return *it;
}

// Under the lock. The object once it has no references left, for end(). A program that releases
// more than it owns takes from others, who then find fewer references, or no object.
std::unique_ptr<CUuserObject_st> release(CUuserObject object, uint64_t count) {
  auto& live = objects().live;
  if (live.count(object) == 0 || object->count < count) return nullptr;
  object->count -= count;
  if (object->count != 0) return nullptr;
  live.erase(object);
  return std::unique_ptr<CUuserObject_st>(object);
}

void end(std::unique_ptr<CUuserObject_st> object) {
  if (object != nullptr) object->destroy(object->data);
}

}  // namespace

void retain_user_objects(const UserReferences& references) {
  std::lock_guard lock(objects().mutex);
  for (const auto& [object, count] : references)
    if (objects().live.count(object) != 0) object->count += count;
}

void release_user_objects(const UserReferences& references) {
  for (const auto& [object, count] : references) {
    std::unique_ptr<CUuserObject_st> gone;
    {
      std::lock_guard lock(objects().mutex);
      gone = release(object, count);
    }
    end(std::move(gone));
  }
}

bool valid_reference_count(unsigned count) { return count != 0 && count <= INT32_MAX; }

bool is_user_object(CUuserObject object) {
  std::lock_guard lock(objects().mutex);
  return objects().live.count(object) != 0;
}

bool owns_references(CUuserObject object, unsigned count) {
  std::lock_guard lock(objects().mutex);
  return objects().live.count(object) != 0 && count <= object->count;
}

}  // namespace sluice::graphs

using namespace sluice::graphs;

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned initial_refcount, unsigned flags) {
  const Caller caller = enter();
  if (!caller) return caller.status;
  if (object_out == nullptr || destroy == nullptr || !valid_reference_count(initial_refcount) ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(objects().mutex);
  *object_out = new CUuserObject_st{ptr, destroy, initial_refcount};
  objects().live.insert(*object_out);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  const Caller caller = enter();
  if (!caller) return caller.status;
  std::lock_guard lock(objects().mutex);
  if (!valid_reference_count(count) || objects().live.count(object) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  object->count += count;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  const Caller caller = enter();
  if (!caller) return caller.status;
  std::unique_ptr<CUuserObject_st> gone;
  {
    std::lock_guard lock(objects().mutex);
    if (!valid_reference_count(count) || objects().live.count(object) == 0 || count > object->count)
      return CUDA_ERROR_INVALID_VALUE;
    gone = release(object, count);
  }
  end(std::move(gone));
  return CUDA_SUCCESS;
}
