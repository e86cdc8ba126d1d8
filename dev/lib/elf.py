"""What an ELF file asks of the machine it runs on, read from its program headers (System V ABI, chapter 5)."""

import struct

PT_DYNAMIC, PT_INTERP = 2, 3
DT_NULL, DT_NEEDED = 0, 1


def not_static(path):
    """Why a 64-bit little-endian program is not static, or None."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        return "no 64-bit little-endian ELF file"
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        at = table + number * size
        (kind,) = struct.unpack_from("<I", data, at)
        offset, _, _, length = struct.unpack_from("<QQQQ", data, at + 8)
        if kind == PT_INTERP:
            return "it asks for the interpreter " + data[offset:offset + length].rstrip(b"\0").decode()
        if kind == PT_DYNAMIC:
            for entry in range(offset, offset + length, 16):
                (tag,) = struct.unpack_from("<q", data, entry)
                if tag == DT_NULL:
                    break
                if tag == DT_NEEDED:
                    return "it asks for a shared library"
    return None
