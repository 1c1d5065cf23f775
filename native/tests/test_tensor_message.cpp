#include <array>
#include <cstring>

#include "share/tensor_message.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

using Bytes = std::array<std::uint8_t, kMaxMessageBytes>;

TensorMessage picture() {
  TensorMessage made;
  made.dtype = {2, 32, 1};
  made.ndim = 2;
  made.shape = {3, 4};
  made.strides = {8, -1};
  made.offset = 12;
  made.capacity = 12 + 64 + 4;
  return made;
}

Code why_not(const TensorMessage& message) {
  Bytes bytes;
  std::size_t count = 0;
  return format_message(message, &bytes, &count).code();
}

std::uint64_t position_of_mistake(const Bytes& bytes, std::size_t count) {
  TensorMessage message;
  const Status status = parse_message(bytes.data(), count, &message);
  TM_CHECK(status.code() == Code::malformed_message);
  return status.ok() ? ~0ULL : status.failure().facts[0];
}

}  // namespace

TM_TEST("what was said is what is heard") {
  Bytes bytes;
  std::size_t count = 0;
  TensorMessage heard;
  TensorMessage said = picture();
  said.flags = TensorMessage::kReadOnly;
  TM_CHECK(format_message(said, &bytes, &count).ok() && count == 40 + 4 * 8);
  TM_CHECK(parse_message(bytes.data(), count, &heard).ok());
  TM_CHECK(heard.kind == MessageKind::tensor && heard.flags == 1 && heard.ndim == 2 && heard.offset == 12);
  TM_CHECK(heard.dtype.code == 2 && heard.dtype.bits == 32 && heard.dtype.lanes == 1 && heard.capacity == 80);
  TM_CHECK(heard.shape == said.shape && heard.strides == said.strides);
  TM_CHECK(descriptor_count(MessageKind::tensor) == 1 && descriptor_count(MessageKind::ring) == 2);
}

TM_TEST("elements outside the memory are refused on both sides, to the byte") {
  const auto with = [](auto&& change) {
    TensorMessage message = picture();
    change(message);
    return why_not(message);
  };
  TM_CHECK(with([](TensorMessage&) {}) == Code::ok);
  TM_CHECK(with([](TensorMessage& m) { m.capacity -= 1; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.offset -= 4; }) == Code::malformed_message);  // a stride goes below 0
  TM_CHECK(with([](TensorMessage& m) { m.offset = ~0ULL; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.capacity = 0; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.capacity = ~0ULL; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.shape[0] = -1; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.strides[0] = INT64_MAX; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.strides[0] = INT64_MIN; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.dtype.bits = 33; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.dtype.lanes = 0; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.flags = 2; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.ndim = 65; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.ndim = -1; }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.kind = static_cast<MessageKind>(3); }) == Code::malformed_message);
  TM_CHECK(with([](TensorMessage& m) { m.kind = MessageKind::ring; }) == Code::malformed_message);  // it has a shape
}

TM_TEST("a ring is announced without a shape") {
  TensorMessage ring;
  ring.kind = MessageKind::ring;
  ring.capacity = 4096;
  TM_CHECK(why_not(ring) == Code::ok);
  ring.offset = 1;
  TM_CHECK(why_not(ring) == Code::malformed_message);
}

TM_TEST("bytes that are no message are refused with the place of the mistake") {
  Bytes bytes;
  std::size_t count = 0;
  TM_CHECK(format_message(picture(), &bytes, &count).ok());
  for (std::size_t length = 0; length < kMaxMessageBytes; ++length) {
    if (length != count) TM_CHECK(position_of_mistake(bytes, length) == length);
  }
  const auto broken = [&](std::size_t at, std::uint8_t value) {
    Bytes copy = bytes;
    copy[at] = value;
    return position_of_mistake(copy, count);
  };
  TM_CHECK(broken(0, 'x') == 0 && broken(7, 1) == 0 && broken(8, 2) == 8 && broken(10, 9) == 10);
  TM_CHECK(broken(12, 4) == 12 && broken(17, 7) == 16 && broken(23, 1) == 20 && broken(20, 3) == count);
  TM_CHECK(broken(31, 1) == 24 && broken(39, 0xFF) == 32 && broken(47, 0xFF) == 40);
}
