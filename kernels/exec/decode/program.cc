// SPDX-License-Identifier: Apache-2.0
// Programs and their images: what is asked of a decoded module.
#include "kernels/exec/program/program.h"

#include <cstring>

#include "kernels/exec/block/block.h"
#include "kernels/exec/decode/decoder.h"

namespace sluice::exec {

Program::Program(std::unique_ptr<detail::ProgramData> data) : data_(std::move(data)) {}
Program::~Program() = default;
std::span<const EntryInfo> Program::entries() const { return data_->entries; }
std::span<const SymbolInfo> Program::symbols() const { return data_->symbols; }
const EntryInfo* Program::find_entry(std::string_view name) const {
  const auto found = data_->entry_index.find(std::string(name));
  return found == data_->entry_index.end() ? nullptr : &data_->entries[found->second];
}

const EntryInfo* Program::kernel_at(uint64_t address) const {
  const uint64_t number = (address - kKernelWindow) / kFunctionStride;
  if (address < kKernelWindow || address % kFunctionStride != 0 ||
      number >= data_->kernel_names.size())
    return nullptr;
  return find_entry(data_->kernel_names[number]);
}
bool Program::launches_kernels() const { return data_->launches_kernels; }

Image::~Image() = default;

Result<std::shared_ptr<const Image>> Image::make(std::shared_ptr<const Program> program,
                                                 std::span<const uint64_t> symbol_addresses) {
  const detail::Code& code = program->data().code;
  if (symbol_addresses.size() != program->symbols().size())
    return Error{0, "one address per symbol is needed"};
  std::shared_ptr<Image> image(new Image());
  image->addresses_.assign(symbol_addresses.begin(), symbol_addresses.end());
  image->data_ = std::make_unique<detail::ImageData>(code.constants.size());
  if (image->data_->constants.data == nullptr)
    return Error{0, "no memory for the module's constants"};
  if (!code.constants.empty())
    std::memcpy(image->data_->constants.data, code.constants.data(), code.constants.size());
  for (size_t k = 0; k < symbol_addresses.size(); ++k)
    if (const SymbolInfo& symbol = program->symbols()[k]; symbol.space == SymbolSpace::kConst)
      image->data_->const_ranges.push_back({symbol_addresses[k], symbol.bytes});
  for (const detail::ConstPatch& patch : code.patches) {
    const uint64_t value = symbol_addresses[patch.symbol] + static_cast<uint64_t>(patch.addend);
    for (uint32_t i = 0; i < kWarpLanes; ++i)
      std::memcpy(image->data_->constants.data + patch.offset + size_t{i} * 8, &value, 8);
  }
  image->program_ = std::move(program);
  return std::shared_ptr<const Image>(std::move(image));
}

std::vector<uint8_t> Image::initial_values(size_t index) const {
  const SymbolInfo& symbol = program_->symbols()[index];
  std::vector<uint8_t> bytes(symbol.initial);
  bytes.resize(symbol.bytes);
  for (const Relocation& r : symbol.relocations) {
    const uint64_t value =
        ((r.function ? detail::function_address(r.target) : addresses_[r.target]) +
         static_cast<uint64_t>(r.addend)) >>
        r.shift;
    if (r.offset + r.width <= bytes.size()) std::memcpy(bytes.data() + r.offset, &value, r.width);
  }
  return bytes;
}

}  // namespace sluice::exec
