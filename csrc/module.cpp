// The Python module. Every method that computes gives up the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "kernels.h"
#include "threads.h"

namespace nb = nanobind;
using namespace thalweg;

NB_MODULE(_kernels, m) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;

  nb::set_leak_warnings(false);  // objects that live until the interpreter ends are no leaks

  m.def("levels", &levels);
  m.def("level", &level);
  m.def("set_level", &set_level);
  m.def("exp", [](Address x, Address y, int64_t n) {
    current_kernels().exp(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), n);
  });
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads, Unlocked());

  nb::class_<Packed>(m, "Packed")
      .def("__init__",
           [](Packed* self, Address values, int32_t source, int64_t n, int64_t k) {
             nb::gil_scoped_release unlocked;
             new (self)
                 Packed(reinterpret_cast<const void*>(values), static_cast<Source>(source), n, k);
           })
      .def_prop_ro("format", &Packed::format_name)
      .def_prop_ro("nbytes", &Packed::nbytes);
  nb::class_<Linear>(m, "Linear")
      .def(nb::init<std::shared_ptr<Packed>, Address>())
      .def("run", &Linear::run, Unlocked());
  nb::class_<Embedding>(m, "Embedding")
      .def(nb::init<std::shared_ptr<Packed>>())
      .def("run", &Embedding::run, Unlocked());
  nb::class_<Norm>(m, "Norm")
      .def(nb::init<Address, int64_t, float>())
      .def("run", &Norm::run, Unlocked())
      .def("run_add", &Norm::run_add, Unlocked())
      .def("run_gated", &Norm::run_gated, Unlocked());
  nb::class_<SiluAndMul>(m, "SiluAndMul")
      .def(nb::init<int64_t>())
      .def("run", &SiluAndMul::run, Unlocked());
  nb::class_<Rotary>(m, "Rotary")
      .def(nb::init<Address, int64_t, float>())
      .def("run", &Rotary::run, Unlocked());
  nb::class_<Conv>(m, "Conv")
      .def(nb::init<Address, int64_t, int64_t>())
      .def("run", &Conv::run, Unlocked());
  nb::class_<Gates>(m, "Gates")
      .def(nb::init<Address, Address, int64_t>())
      .def("run", &Gates::run, Unlocked());
  nb::class_<Delta>(m, "Delta")
      .def(nb::init<int64_t, int64_t, int64_t, int64_t, float>())
      .def("run", &Delta::run, Unlocked());
  nb::class_<Attention>(m, "Attention")
      .def(nb::init<int64_t, int64_t, int64_t, int64_t, float>())
      .def("write", &Attention::write, Unlocked())
      .def("run", &Attention::run, Unlocked());
  nb::class_<MoE>(m, "MoE")
      .def(nb::init<std::shared_ptr<Packed>, std::vector<std::shared_ptr<Packed>>,
                    std::vector<std::shared_ptr<Packed>>, int64_t, bool>())
      .def("add_shared", &MoE::add_shared)
      .def("run", &MoE::run, Unlocked());
  nb::class_<Sampler>(m, "Sampler")
      .def(nb::init<int64_t>())
      .def("run", &Sampler::run, Unlocked())
      .def("run_logprobs", &Sampler::run_logprobs, Unlocked());
}
