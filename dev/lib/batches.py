"""Record batches (format v2) as bytes: walking segment files, and writing small uncompressed ones by hand."""

import mmap
import pathlib
import struct

HEADER = 61
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class Batch:
    """One batch header with the place of its payload."""

    FORM = struct.Struct(">qiibIhiqqqhii")

    def __init__(self, view, at, file):
        (self.base_offset, self.length, self.leader_epoch, self.magic, self.crc, self.attributes, self.last_delta,
         self.base_timestamp, self.max_timestamp, self.producer_id, self.producer_epoch, self.base_sequence,
         self.count) = self.FORM.unpack_from(view, at)
        self.view, self.at, self.file = view, at, file

    @property
    def end(self):
        return self.at + 12 + self.length

    @property
    def payload(self):
        return self.view[self.at + HEADER:self.end]

    @property
    def codec(self):
        return CODECS.get(self.attributes & 7, f"codec {self.attributes & 7}")

    @property
    def is_control(self):
        return bool(self.attributes & 0x20)

    @property
    def is_transactional(self):
        return bool(self.attributes & 0x10)

    def commits(self):
        """For a control batch: True for a commit marker, False for an abort marker."""
        payload = bytes(self.payload)
        at = 0
        _, at = varint(payload, at)   # length
        at += 1                       # attributes
        _, at = varint(payload, at)   # timestamp delta
        _, at = varint(payload, at)   # offset delta
        size, at = varint(payload, at)
        return struct.unpack_from(">hh", payload, at)[1] == 1

    def __str__(self):
        return f"{pathlib.Path(self.file).name} byte {self.at}, offset {self.base_offset}"


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def walk(folder):
    """Every complete batch of a partition's folder, in order of offset."""
    for path in sorted(pathlib.Path(folder).glob("*.log")):
        size = path.stat().st_size
        if size < HEADER:
            continue
        with open(path, "rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))
        at = 0
        while at + HEADER <= size:
            batch = Batch(view, at, path)
            # Zeros after the end of a preallocated file, or a batch that is being written.
            if batch.length <= 0 or batch.end > size:
                break
            if batch.magic != 2:
                raise ValueError(f"{batch}: record format {batch.magic}, only 2 can be compared")
            yield batch
            at = batch.end


def committed(batches):
    """What a read_committed consumer gets to see, and where it stops: `(data batches, first open offset or None)`."""
    kept, pending = [], {}
    for batch in batches:
        if batch.is_control:
            if batch.attributes & 0x10:
                fate = batch.commits()
                for held in pending.pop(batch.producer_id, []):
                    held.fate = fate
            continue
        batch.fate = True
        if batch.is_transactional:
            batch.fate = None
            pending.setdefault(batch.producer_id, []).append(batch)
        kept.append(batch)
    open_from = min((held[0].base_offset for held in pending.values()), default=None)
    return [batch for batch in kept
            if batch.fate and (open_from is None or batch.base_offset < open_from)], open_from


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def signed(value):
    value = value << 1 ^ value >> 63
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sized(value):
    return signed(-1) if value is None else signed(len(value)) + value


def encode(records, base_timestamp):
    """`records`: `(timestamp, key, value, [(header key bytes, header value)])`; nothing is checked, on purpose."""
    body = b""
    for index, (timestamp, key, value, headers) in enumerate(records):
        record = b"\0" + signed(timestamp - base_timestamp) + signed(index) + sized(key) + sized(value)
        record += signed(len(headers)) + b"".join(sized(name) + sized(content) for name, content in headers)
        body += signed(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, len(records) - 1, base_timestamp, max(record[0] for record in records),
                          -1, -1, -1, len(records)) + body
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked
