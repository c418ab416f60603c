"""The cache of compiled programs: bytes in, checked programs out. No failure of the cache makes a model fail.

Read `store.py` first.

- `key.py`: `fingerprint(path_or_bytes) -> str`, xxh3-128 of the content as 32 hex digits, and
  `model_key(fingerprint=..., token=..., target=..., features=..., loader=..., options=(...)) -> Key`: named parts.
- `directory.py`: `open_cache_directory(serialization_dir) -> CacheDirectory`, to which no other user can write, or
  `CacheError`.
- `store.py`: `open_store(serialization_dir) -> Store`, which never raises because of the cache, and
      `store.get(key) -> Lookup`                    hit, kind, reason, path, program
      `store.put(key, *parts) -> str`               "" or why nothing was written
      `store.fetch(key, compile) -> Lookup`         get; else compile once across processes, put, and read back
      `store.refuse(key, reason) -> None`           the runtime found an entry damaged: count it and remove it
      `store.fingerprint(path_or_bytes) -> str`     with the memo where there is one; `store.forget_fingerprint`
      `open_entry(directory, name) -> Program`      for tools; large weights are shared with the file
- `records.py`: small files of records of equal size beside the entries.
- `memo.py`: stores fingerprints of large files. `shared_weights.py`: weights in other entries.
- `eviction.py`: `evict(directory, key, uses)`, so that a model with many shapes does not fill the disk.
- `model_names.py`: the names of the models whose programs are in a directory.
- `trouble.py`: `tell(directory, reason)`, a warning and a log line, once per directory.
- `lock.py`: lets one process compile while others wait; correctness never depends on it.
- `store.counts`: `counts.hits`, `counts.misses` (by kind of reason), `counts.writes`, `counts.write_failures`,
  `counts.lock_timeouts`, `counts.evictions`.
"""
