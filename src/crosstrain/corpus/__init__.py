"""Corpora: text packed once into flat files of tokens, which every site holds a copy of.

`build` turns inputs into a corpus directory, `manifest` says what is in one (and is all that a coordinator reads),
`verify` recomputes it, `reading` opens it. A corpus is identified by `Manifest.content_sha256`.

    inputs     what the command line named, cut into parts that can be read alone
    documents  parts into documents (`records` for jsonl and parquet)
    shards     parts into tokens and a table of documents, in worker processes
    split      which documents are duplicates, which are held out
    packing    shards into train.bin and heldout.bin
"""
