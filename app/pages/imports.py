"""Import: how do I look inside rollouts that another trainer wrote?"""

from __future__ import annotations

from app import urls, widgets
from app.importing import earlier, job, preview, source


def page() -> None:
    widgets.page_header(
        "How do I look inside rollouts that another trainer wrote?",
        "Files of TRL, verl, prime-rl, NeMo-RL and more become a run that every page opens and nothing can start; "
        "so does a run that a colleague sent as one file.",
    )
    if running := urls.param("job"):
        job.show(running)
    else:
        job.elsewhere()
        earlier.chosen()
        if chosen := source.choose():
            preview.show(chosen)
    earlier.show()


if __name__ == "__main__":
    page()
