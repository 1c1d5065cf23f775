# Owns: the declarations of native/share/ for the Cython modules of this package. No code.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.vector cimport vector

from tensormem._core.native cimport Status, Wait
from tensormem._core.native_tensor cimport DataType


cdef extern from "share/ring_file.hpp" namespace "tensormem" nogil:
    const int32_t kMaxFrameDims
    const uint32_t kMaxReaders
    cdef enum class WhenFull(uint32_t):
        wait
        drop
        overwrite
    cdef enum class ReadMode(uint32_t):
        latest
        every
    cdef cppclass FrameFormat:
        uint32_t frame_count
        WhenFull when_full
        ReadMode mode
        DataType dtype
        int32_t ndim
        int64_t shape[8]
        uint64_t frame_bytes
        uint64_t slot_bytes
        uint32_t slot_count
    cdef cppclass AtomicU64 "std::atomic<std::uint64_t>":
        uint64_t load()
    cdef cppclass AtomicU32 "std::atomic<std::uint32_t>":
        uint32_t load()
    cdef cppclass RingHeader:
        AtomicU64 latest
        AtomicU64 dropped
        AtomicU32 writer_pid
        AtomicU32 writers
    cdef cppclass RingReaderFacts:
        uint32_t pid
        cbool every
        uint64_t taken
        uint64_t missed
    cdef cppclass NativeRingFile "tensormem::RingFile":
        @staticmethod
        Status create(FrameFormat format, shared_ptr[NativeRingFile]* file)
        @staticmethod
        Status attach(int fd, shared_ptr[NativeRingFile]* file)
        const FrameFormat& format()
        RingHeader& header()
        int fd()
        uint64_t nbytes()
        vector[RingReaderFacts] readers()
    ctypedef shared_ptr[NativeRingFile] RingFilePtr


cdef extern from "share/latch.hpp" namespace "tensormem" nogil:
    cbool is_own_timeout(const Status& waited)
    cdef cppclass NativeLatch "tensormem::Latch":
        cbool is_open()
        void open()
        Status wait(const Wait& wait)


cdef extern from "share/descriptor_wait.hpp" namespace "tensormem" nogil:
    cdef cppclass pollfd "pollfd":
        int fd
        short events
        short revents
    Status wait_for_descriptors(pollfd* watched, uint32_t count, const Wait& wait)


cdef extern from "share/ring_writer.hpp" namespace "tensormem" nogil:
    const uint32_t kNoSlot "tensormem::RingWriter::kNoSlot"
    const uint32_t kBusy "tensormem::RingWriter::kBusy"
    const uint64_t kNotBegun "tensormem::RingWriter::kNotBegun"
    cdef cppclass NativeRingWriter "tensormem::RingWriter":
        @staticmethod
        Status attach(RingFilePtr file, unique_ptr[NativeRingWriter]* writer)
        Status wait(Wait wait, uint32_t* slot)
        void close()
        uint64_t publish(uint64_t timestamp)
        void abandon()
        void end()
        cbool is_forked()


cdef extern from "share/ring_reader.hpp" namespace "tensormem" nogil:
    cdef cppclass HeldFrame:
        uint32_t slot
        uint64_t number
        uint64_t timestamp
        uint64_t dropped
    cdef enum class ReadOutcome(uint8_t):
        frame
        nothing_yet
        ended
        writer_gone
    cdef cppclass NativeRingReader "tensormem::RingReader":
        @staticmethod
        Status attach(RingFilePtr file, ReadMode mode, unique_ptr[NativeRingReader]* reader)
        Status wait(Wait wait, cbool for_a_writer, HeldFrame* frame, ReadOutcome* outcome)
        void close()
        void give_back(uint32_t slot)
        cbool is_forked()


cdef extern from "share/tensor_message.hpp" namespace "tensormem" nogil:
    const size_t kMaxMessageBytes
    cdef enum class MessageKind(uint16_t):
        tensor
        ring
    const uint32_t kMessageReadOnly "tensormem::TensorMessage::kReadOnly"
    cdef cppclass NativeMessage "tensormem::TensorMessage":
        MessageKind kind
        uint32_t flags
        DataType dtype
        int32_t ndim
        uint64_t offset
        uint64_t capacity
        int64_t shape[64]
        int64_t strides[64]
    cdef cppclass MessageBytes "std::array<std::uint8_t, tensormem::kMaxMessageBytes>":
        const uint8_t* data()
    uint32_t descriptor_count(MessageKind kind)
    Status parse_message(const uint8_t* bytes, size_t count, NativeMessage* message)
    Status format_message(const NativeMessage& message, MessageBytes* bytes, size_t* count)
