"""Runs of rollouts that another trainer wrote.

formats/     one module a kind of files: what it looks like, and its rows in one shape (`base.SCHEMA`)
write.py     `bring_in`: from a format's rows to a sealed run, or what is new of them into the run that is there
work         one import, step by step: what is read, arranged, fitted, written, moved into place
lab          lab.json, which the lab's own exports leave beside the rollouts: the method that made their advantages
spelling     texts for token ids, by a model's tokenizer.json
stage, keys  rows on disk while they wait; which are one group, which are there twice
fit          which convention the trainer's advantages follow
records, steps, metrics, sealed   each step through the code that stores training, many at a time into the file
follow       importing a path again
manifest     import.json, for pages
dropped, glimpse, jobs, bundles   what a page needs: files under safe names, a look, a process of its own, whole runs
"""
