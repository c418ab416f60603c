"""The cache of compiled programs: bytes in, checked programs out. No failure of the cache makes a model fail.

Read `store.py` first.

- `key.py`: `fingerprint(path_or_bytes) -> str`, xxh3-128 of the content as 32 hex digits, and
  `model_key(fingerprint=..., token=..., target=..., features=..., loader=..., options=(...)) -> Key`: named parts.
- `directory.py`: `open_cache_directory(serialization_dir) -> CacheDirectory`, to which no other user can write, or
  `CacheError`; `open_prebuilt_folder(path)`, for one that is only read.
- `store.py`: `open_store(serialization_dir, most_bytes=...) -> Store`, which never raises because of the cache, and
      `store.get(key) -> Lookup`                    hit, kind, reason, path, program
      `store.put(key, *parts) -> str`               "" or why nothing was written
      `store.fetch(key, compile) -> Lookup`         get; else compile once across processes, put, and read back
      `store.refuse(key, reason) -> None`           the runtime found an entry damaged: count it and remove it
      `store.fingerprint(path_or_bytes) -> str`     with the memo where there is one; `store.forget_fingerprint`
      `open_entry(directory, name) -> Program`      for tools; large weights are shared with the file
- `prebuilt_store.py`: `PrebuiltStore(folders, serialization_dir)`, which looks into prebuilt folders before.
- `output_folder.py`: `open_output(path)`, the store of a folder that all users may read.
- `records.py`: small files of records of equal size beside the entries.
- `memo.py`: stores fingerprints of large files. `shared_weights.py`: weights in other entries.
- `staging.py`: entries that come from elsewhere, in temporary files until all are checked.
- `remote.py`: `pull(directory, url, key_path, key)` fetches an entry that other machines compiled; `remote_files.py`
  reads its files, `statements.py` and `public_key.py` check who signed them.
- After a program was stored: `limit.py` keeps the directory's limit, `eviction.py` that of a model with many shapes,
  and `outdated.py` removes what nobody uses any more. `litter.py` removes what killed processes left.
- `use_log.py`: what processes did in a directory, and when they used an entry last. `statistics.py`: `cache_stats`.
- `model_names.py`: the names of the models whose programs are in a directory.
- `trouble.py`: `tell(directory, reason)`, a warning and a log line, once per directory.
- `lock.py`: lets one process compile while others wait; correctness never depends on it.
- `store.counts`: `counts.hits`, `counts.misses` (by kind of reason), `counts.writes`, `counts.write_failures`,
  `counts.lock_timeouts`, `counts.evictions`, `counts.remote_hits`.
"""
