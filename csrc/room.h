// Floats between the steps of a pass.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels.h"

namespace thalweg {

// Taken from memory that stays with the thread from pass to pass: new memory of the system costs a
// page fault every few KiB. Rooms end in the reverse order of their beginnings, as locals do.
class Room {
 public:
  explicit Room(int64_t count) : count_((count + 15) / 16 * 16) {
    Store& store = Room::store();
    if (store.used == 0 && store.most > store.size) {
      store.memory.reset(new float[store.most]);
      store.size = store.most;
    }
    if (store.used + count_ <= store.size) {
      data_ = store.memory.get() + store.used;
    } else {  // the next pass finds it larger
      own_.reset(new float[count_]);
      data_ = own_.get();
    }
    store.used += count_;
    store.most = std::max(store.most, store.used);
  }
  ~Room() { store().used -= count_; }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  float* get() const { return data_; }
  Address at(int64_t offset = 0) const { return reinterpret_cast<Address>(data_ + offset); }

 private:
  struct Store {
    std::unique_ptr<float[]> memory;
    int64_t size = 0, used = 0, most = 0;
  };
  static Store& store() {
    static thread_local Store instance;
    return instance;
  }

  int64_t count_;
  float* data_;
  std::unique_ptr<float[]> own_;
};

}  // namespace thalweg
