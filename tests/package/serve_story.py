#!/usr/bin/env python3
"""Serves the storyteller as tales/Story-5M, as the hub would (../hub/fake_hub.py); prints the address and waits.

serve_story.py FOLDER"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "hub"))
import fake_hub

folder = pathlib.Path(sys.argv[1])
names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
hub = fake_hub.FakeHub()
hub.repositories["tales/Story-5M"] = fake_hub.Repository({name: (folder / name).read_bytes() for name in names})
print(hub.url, flush=True)
while True:
    time.sleep(3600)
