"""Every dependency's licence must be an allowed one, and some crates must not be there at all."""

import re

from common import Fault

ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib",
           "Unicode-3.0", "CDLA-Permissive-2.0"}
# C clients, a second crypto provider, and C code beside the three crates that may bring some.
BANNED = {"openssl-sys", "openssl", "native-tls", "rdkafka-sys", "rdkafka", "libgssapi-sys", "libgssapi",
          "cross-krb5", "lz4-sys", "lz4", "ring"}
# Crates that compile or link C must be named here; a fourth needs a written reason.
NATIVE = {"aws-lc-sys", "zstd-sys", "libmimalloc-sys"}
# These only mark a version with `links`; nothing of C is compiled or linked for them.
NO_NATIVE_CODE = {"rayon-core", "wasm-bindgen-shared", "prettyplease"}


def permitted(expression):
    """Whether an SPDX expression can be met by allowed licences alone. `/` is an old way to say OR."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def one():
        nonlocal at
        word = words[at]
        at += 1
        if word == "(":
            inside = either()
            if at >= len(words) or words[at] != ")":
                raise Fault(f"licence expression not understood: {expression}")
            at += 1
            return inside
        if at + 1 < len(words) and words[at] == "WITH":
            word += f" WITH {words[at + 1]}"
            at += 2
        return word in ALLOWED

    def both():
        nonlocal at
        result = one()
        while at < len(words) and words[at] == "AND":
            at += 1
            result = one() and result
        return result

    def either():
        nonlocal at
        result = both()
        while at < len(words) and words[at] == "OR":
            at += 1
            result = both() or result
        return result

    result = either()
    if at != len(words):
        raise Fault(f"licence expression not understood: {expression}")
    return result


def check(metadata):
    faults = []
    theirs = [package for package in metadata["packages"] if package["source"]]
    for package in theirs:
        label = f"{package['name']} {package['version']}"
        if package["name"] in BANNED:
            faults.append(f"{label} is banned")
        if package.get("links") and package["name"] not in NATIVE | NO_NATIVE_CODE:
            faults.append(f"{label} links native code ({package['links']})")
        if not package["license"]:
            faults.append(f"{label} names no licence")
        elif not permitted(package["license"]):
            faults.append(f"{label} has the licence {package['license']}")
    if not theirs:
        faults.append("cargo names no dependency at all")
    if faults:
        raise Fault("\n".join(sorted(faults)))
    print(f"{len(theirs)} dependencies, all of them with allowed licences")
