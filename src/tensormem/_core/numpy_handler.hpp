// Owns: a resource as NumPy's data allocator (NEP 49): the handler NumPy calls, inside the capsule that every array
// made with it holds. So the handler, the resource and the Python object behind it live as long as the last such array.
// NumPy's headers are not needed: its structures are declared here, version 1, which never changes.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "_core/hooks.hpp"
#include "resource/c_allocator.hpp"

namespace tensormem {

// What native code holds instead of a resource whose Python object must stay: it may be written in Python.
inline ResourcePtr keep_with_object(Resource* native, PyObject* object) { return ResourcePtr(hold(object), native); }

inline constexpr const char* kHandlerCapsule = "mem_handler";

struct DataMemAllocator {
  void* ctx;
  void* (*malloc)(void* ctx, std::size_t nbytes);
  void* (*calloc)(void* ctx, std::size_t count, std::size_t element_bytes);
  void* (*realloc)(void* ctx, void* pointer, std::size_t nbytes);
  void (*free)(void* ctx, void* pointer, std::size_t nbytes);
};

struct DataMemHandler {
  char name[127];
  std::uint8_t version;
  DataMemAllocator allocator;
};
static_assert(sizeof(DataMemHandler) == 128 + 5 * sizeof(void*));

// An array may be freed while an exception is on its way; whatever a resource does in Python must not disturb it.
class PendingError {
 public:
  PendingError() : attached_(PyGILState_Check() != 0) {
    if (attached_) PyErr_Fetch(&type_, &value_, &traceback_);
  }
  ~PendingError() {
    if (attached_) PyErr_Restore(type_, value_, traceback_);
  }
  PendingError(const PendingError&) = delete;
  PendingError& operator=(const PendingError&) = delete;

 private:
  const bool attached_;
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

struct NumpyHandler {
  DataMemHandler face{};
  CAllocator allocator;

  NumpyHandler(ResourcePtr resource, TagId tag) : allocator(std::move(resource), tag) {
    std::strncpy(face.name, "tensormem", sizeof face.name - 1);
    face.version = 1;
    face.allocator = {&allocator, &allocate, &allocate_zeroed, &reallocate, &deallocate};
  }

 private:
  static CAllocator& of(void* ctx) { return *static_cast<CAllocator*>(ctx); }
  static void* allocate(void* ctx, std::size_t nbytes) { return of(ctx).allocate(nbytes); }
  static void* allocate_zeroed(void* ctx, std::size_t count, std::size_t element_bytes) {
    return of(ctx).allocate_zeroed(count, element_bytes);
  }
  static void* reallocate(void* ctx, void* pointer, std::size_t nbytes) { return of(ctx).reallocate(pointer, nbytes); }
  static void deallocate(void* ctx, void* pointer, std::size_t) {
    const PendingError pending;
    of(ctx).deallocate(pointer);
  }
};

// The capsule of a new handler; `*handler` lives as long as it. Null with an exception set on failure.
inline PyObject* make_numpy_handler(ResourcePtr resource, TagId tag, NumpyHandler** handler) {
  auto* made = new (std::nothrow) NumpyHandler(std::move(resource), tag);
  if (made == nullptr) return PyErr_NoMemory();
  PyObject* capsule = PyCapsule_New(&made->face, kHandlerCapsule, [](PyObject* dying) {
    const PendingError pending;
    // The context is what was allocated; the pointer is only its first part.
    delete static_cast<NumpyHandler*>(PyCapsule_GetContext(dying));
  });
  if (capsule == nullptr) {
    delete made;
    return nullptr;
  }
  if (PyCapsule_SetContext(capsule, made) != 0) {
    Py_DECREF(capsule);
    delete made;
    return nullptr;
  }
  *handler = made;
  return capsule;
}

// What is needed of NumPy's table of functions.
struct NumpyTable {
  DataMemHandler* standard = nullptr;                     // the default allocator
  PyObject* (*set_handler)(PyObject* handler) = nullptr;  // gives the one before; for this thread or asynchronous task
};

// "" when the table is as expected, else what is not. Nothing in it is used before it was checked.
inline const char* read_numpy_table(PyObject* capsule, NumpyTable* table) {
  // The places are part of NumPy's binary interface, the same in every version that has them.
  constexpr int kFeatureVersion = 211;
  constexpr int kSetHandler = 304;
  constexpr int kGetHandler = 305;
  constexpr int kDefaultHandler = 306;
  constexpr unsigned kFirstWithHandlers = 0x0F;  // NumPy 1.22
  // The one capsule without a name.
  if (PyCapsule_IsValid(capsule, nullptr) == 0) return "its table of functions is not one of NumPy's";
  auto** entries = static_cast<void**>(PyCapsule_GetPointer(capsule, nullptr));
  if (reinterpret_cast<unsigned (*)()>(entries[kFeatureVersion])() < kFirstWithHandlers)
    return "it is older than 1.22, the first with a hook for allocators";
  PyObject* standard = *static_cast<PyObject**>(entries[kDefaultHandler]);
  if (standard == nullptr || PyCapsule_IsValid(standard, kHandlerCapsule) == 0)
    return "its default allocator is not where it is in other versions";
  auto* face = static_cast<DataMemHandler*>(PyCapsule_GetPointer(standard, kHandlerCapsule));
  if (face->version != 1 || std::strcmp(face->name, "default_allocator") != 0)
    return "its default allocator is not of the version that is known";
  PyObject* current = reinterpret_cast<PyObject* (*)()>(entries[kGetHandler])();
  const bool understood = current != nullptr && PyCapsule_IsValid(current, kHandlerCapsule) != 0;
  Py_XDECREF(current);
  if (!understood) return "its current allocator cannot be read";
  table->standard = face;
  table->set_handler = reinterpret_cast<PyObject* (*)(PyObject*)>(entries[kSetHandler]);
  return "";
}

}  // namespace tensormem
