// The program's own objects that graphs keep alive (cuUserObject*): a count, and a function of the program that is
// called when it comes to nothing.
#include "guest-agent/shim/api.h"
#include "guest-agent/shim/graph.h"

struct CUuserObject_st {
  void* data;
  CUhostFn destroy;
  uint64_t count;
};

using namespace sluice::guest;

namespace {

// Under the graphs' lock.
std::unordered_set<CUuserObject>& objects() {
  static auto* it = new std::unordered_set<CUuserObject>;
  return *it;
}

// INT_MAX references at a time, as CUDA has it.
bool valid_count(unsigned count) { return count != 0 && count <= INT32_MAX; }

// Gives back `count`, and the object once it is nobody's. A program that gave back more than was its own has taken it
// from others, who find less, or no object.
std::unique_ptr<CUuserObject_st> give_back(CUuserObject object, uint64_t count) {
  if (objects().count(object) == 0 || object->count < count) return nullptr;
  object->count -= count;
  if (object->count != 0) return nullptr;
  objects().erase(object);
  return std::unique_ptr<CUuserObject_st>(object);
}

void end(std::unique_ptr<CUuserObject_st> object) {
  if (object != nullptr) object->destroy(object->data);
}

}  // namespace

namespace sluice::guest {

void retain_user_objects(const UserReferences& references) {
  for (const auto& [object, count] : references)
    if (objects().count(object) != 0) object->count += count;
}

void release_user_objects(const UserReferences& references) {
  for (const auto& [object, count] : references) {
    std::unique_ptr<CUuserObject_st> gone;
    {
      std::lock_guard lock(graphs().mutex);
      gone = give_back(object, count);
    }
    end(std::move(gone));
  }
}

}  // namespace sluice::guest

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned initial_refcount,
                            unsigned flags) {
  const Entered e = enter();
  if (!e) return e.status;
  if (object_out == nullptr || destroy == nullptr || !valid_count(initial_refcount) ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(graphs().mutex);
  *object_out = new CUuserObject_st{ptr, destroy, initial_refcount};
  objects().insert(*object_out);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(graphs().mutex);
  if (!valid_count(count) || objects().count(object) == 0) return CUDA_ERROR_INVALID_VALUE;
  object->count += count;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  const Entered e = enter();
  if (!e) return e.status;
  std::unique_ptr<CUuserObject_st> gone;
  {
    std::lock_guard lock(graphs().mutex);
    if (!valid_count(count) || objects().count(object) == 0 || count > object->count) return CUDA_ERROR_INVALID_VALUE;
    gone = give_back(object, count);
  }
  end(std::move(gone));
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(graphs().mutex);
  if (!graphs().live(graph) || objects().count(object) == 0 || !valid_count(count) ||
      (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0)
    object->count += count;
  else if (count > object->count)
    return CUDA_ERROR_INVALID_VALUE;
  graph->objects[object] += count;
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  const Entered e = enter();
  if (!e) return e.status;
  std::unique_ptr<CUuserObject_st> gone;
  {
    std::lock_guard lock(graphs().mutex);
    if (!graphs().live(graph) || !valid_count(count)) return CUDA_ERROR_INVALID_VALUE;
    const auto it = graph->objects.find(object);
    if (it == graph->objects.end() || it->second < count) return CUDA_ERROR_INVALID_VALUE;
    if ((it->second -= count) == 0) graph->objects.erase(it);
    gone = give_back(object, count);
  }
  end(std::move(gone));
  return CUDA_SUCCESS;
}
