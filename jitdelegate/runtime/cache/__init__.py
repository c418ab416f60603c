"""Compiled programs stored between processes: bytes in, checked programs out; no failure here fails a model.

Read `store.py` first.

- `fingerprint.py`: `fingerprint(path_or_bytes, *, memo=None) -> str`, xxh3-128 of the content as 32 hex digits;
  `Memo(place)` remembers fingerprints of files beside the entries.
- `key.py`: `model_key(fingerprint=..., token=..., target=..., features=..., loader=..., options=(...)) -> Key`: named
  parts.
- `place.py`: `open_place(serialization_dir) -> Place`, a directory that nobody else can write, or `CacheError`.
- `store.py`: `open_store(serialization_dir) -> Store`, which never raises because of the cache, and
      `store.get(key) -> Lookup`                    hit, kind, reason, path, program
      `store.put(key, *parts) -> str`               "" or why nothing was written
      `store.fetch(key, compile) -> Lookup`         get; else compile once across processes, put, and read back
      `store.refuse(key, reason) -> None`           the runtime found an entry damaged: count it and remove it
      `store.fingerprint(path_or_bytes) -> str`     with the memo where there is one; `store.forget_fingerprint`
- `entry.py`: `open_entry(place, name) -> Program`; large weights are shared with the file. `lenders.py`: the other
  entries in which a part of them lies.
- `eviction.py`: `evict(place, key, uses)`, so that a model with ever new shapes does not fill the disk.
- `model_names.py`: the names of the models whose programs are in a directory.
- `trouble.py`: `tell(directory, reason)`, a warning and a log line, once per directory.
- `lock.py`: single flight across processes; correctness never depends on it.
- `store.counts`: `counts.hits`, `counts.misses` (by kind of reason), `counts.writes`, `counts.write_failures`,
  `counts.lock_timeouts`, `counts.evictions`.
"""
