"""At the start of every kernel here: a notebook that has a recording beside it replays it."""


def replay() -> None:
    """Name the recording of this kernel's notebook, unless the person has named one."""
    import os
    from pathlib import Path

    notebook = os.environ.get("JPY_SESSION_NAME")
    recording = Path(notebook).with_suffix(".cassette.json") if notebook else None
    if recording is not None and recording.is_file():
        os.environ.setdefault("ASTRION_REPLAY", str(recording))


replay()
del replay
