// The Python module. Every method that computes gives up the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "kernels.h"
#include "layer.h"
#include "threads.h"

namespace nb = nanobind;
using namespace thalweg;

// Addresses of rows and of the order of their groups, or 0.
using PartTuple = std::tuple<Address, int32_t, int64_t, Address>;

// Addresses of a layer's two pools and of its log, or 0, and whether the pools are bfloat16.
using PoolsTuple = std::tuple<Address, Address, Address, bool>;

NB_MODULE(_kernels, m) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;

  nb::set_leak_warnings(false);  // objects that live until the interpreter ends are no leaks

  m.def("levels", &levels);
  m.def("level", &level);
  m.def("set_level", &set_level);
  m.def("exp", [](Address x, Address y, int64_t n) {
    current_kernels().exp(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), n);
  });
  m.def("read_memory", &read_memory, Unlocked());
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads, Unlocked());

  nb::class_<Packed>(m, "Packed")
      .def("__init__",
           [](Packed* self, const std::vector<PartTuple>& parts, int64_t k) {
             nb::gil_scoped_release unlocked;
             std::vector<Part> all;
             for (const auto& [data, source, rows, groups] : parts) {
               all.push_back({reinterpret_cast<const uint8_t*>(data), static_cast<Source>(source),
                              rows, reinterpret_cast<const int32_t*>(groups)});
             }
             new (self) Packed(all, k);
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
  nb::class_<FeedForward>(m, "FeedForward");
  nb::class_<MLP, FeedForward>(m, "MLP")
      .def(nb::init<std::shared_ptr<Packed>, std::shared_ptr<Packed>>())
      .def("run", &MLP::run, Unlocked());
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
  nb::class_<MoE, FeedForward>(m, "MoE")
      .def(nb::init<std::shared_ptr<Packed>, std::vector<std::shared_ptr<Packed>>,
                    std::vector<std::shared_ptr<Packed>>, int64_t, bool>())
      .def("add_shared", &MoE::add_shared)
      .def("run", &MoE::run, Unlocked());
  nb::class_<Replay>(m, "Replay")
      .def("__init__", [](Replay* self, int64_t num_pending, int64_t num_logged, Address pending,
                          Address pending_at, Address new_at, Address logged, Address logged_at,
                          Address cu_seqlens, Address store_slots) {
        new (self) Replay{num_pending, num_logged, pending,    pending_at, new_at,
                          logged,      logged_at,  cu_seqlens, store_slots};
      });
  nb::class_<Pass>(m, "Pass")
      .def("__init__", [](Pass* self, int64_t tokens, int64_t num_seqs, Address cu_seqlens,
                          Address seq_lens, Address positions, Address rope_positions,
                          Address block_table, int64_t table_stride, Address slot_mapping,
                          Address load_slots, Address store_slots, const Replay& replay) {
        new (self) Pass{tokens,         num_seqs,    cu_seqlens,   seq_lens,     positions,
                        rope_positions, block_table, table_stride, slot_mapping, load_slots,
                        store_slots,    replay};
      });
  nb::class_<Mixer>(m, "Mixer");
  nb::class_<GatedDeltaNetMixer, Mixer>(m, "GatedDeltaNetMixer")
      .def(nb::init<std::shared_ptr<Linear>, std::shared_ptr<Gates>, std::shared_ptr<Conv>,
                    std::shared_ptr<Delta>, std::shared_ptr<Norm>, std::shared_ptr<Linear>>());
  nb::class_<AttentionMixer, Mixer>(m, "AttentionMixer")
      .def(nb::init<std::shared_ptr<Linear>, std::shared_ptr<Norm>, std::shared_ptr<Norm>,
                    std::shared_ptr<Rotary>, std::shared_ptr<Attention>, std::shared_ptr<Linear>,
                    bool>(),
           nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg());
  nb::class_<Layer>(m, "Layer")
      .def(nb::init<std::shared_ptr<Norm>, std::shared_ptr<Mixer>, std::shared_ptr<Norm>,
                    std::shared_ptr<FeedForward>>());
  nb::class_<Layers>(m, "Layers")
      .def(nb::init<std::vector<std::shared_ptr<Layer>>>())
      .def("run", [](const Layers& self, const Pass& pass, const std::vector<PoolsTuple>& pools,
                     Address hidden, Address residual, Address out, Address sum) {
        nb::gil_scoped_release unlocked;
        std::vector<Pools> all;
        for (const auto& [first, second, log, bf16] : pools) {
          all.push_back({first, second, bf16, log});
        }
        self.run(pass, all, hidden, residual, out, sum);
      });
  nb::class_<Sampler>(m, "Sampler")
      .def(nb::init<int64_t>())
      .def("run", &Sampler::run, Unlocked())
      .def("run_largest", &Sampler::run_largest, Unlocked())
      .def("run_logprobs", &Sampler::run_logprobs, Unlocked());
}
