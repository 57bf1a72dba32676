"""Who says what in ``ask-and-guide.ipynb``: a course is prepared while its owner reaches into the work.

The engineer holds until it is asked, the Researcher until it is sent a message, so the cells of the
notebook find them at work. The Researcher's question is one that only the person can decide: the
leader leaves it open, also when it is reminded. The second run is stopped.
"""

from __future__ import annotations

from astrion_nb.testing import ScriptedModel, call, say, until_message

LEADER = [
    say("A programme and a checklist: two pieces of work for two agents, who begin at once.")
    + call(
        "create_sub_agent",
        agent_id=1,
        role_id="researcher",
        task=(
            "Write the programme of a half-day course, with times, for twelve people of a museum's staff who have "
            "never programmed. They are to keep their visitor counts in a notebook instead of a spreadsheet. Name "
            "what beginners stumble over and where the programme takes care of it. Full-Stack Engineer_1 prepares the "
            "computers at the same time. Report the programme and what you assumed."
        ),
    )
    + call(
        "create_sub_agent",
        agent_id=1,
        role_id="full-stack-engineer",
        task=(
            "Write the checklist for the room of a half-day notebook course: twelve people who have never "
            "programmed, a computer each. It must be possible to tick it off the day before. Researcher_1 writes the "
            "programme at the same time. Report the checklist, with how each point is checked."
        ),
    ),
    say("Both are at work. I wait for their reports."),
    say(
        "Researcher_1 asks whether the half day may be split into two mornings. That decides about your staff's time, "
        "so I leave it to you."
    ),
    say("I keep to that: only you can say whether the course may be split. The question is open for you."),
    say("The programme is two mornings now. Full-Stack Engineer_1 has to know, since work must be kept in between.")
    + call(
        "send_message_to_sub_agent",
        agent_id=2,
        message=(
            "The course is now two mornings of two hours, a week apart. What people make on the first morning must be "
            "there on the second, and they are to use it at work in between. Take that into the checklist."
        ),
    ),
    say("I wait for the checklist."),
    say(
        "## The course\n"
        "\n"
        "Two mornings of two hours, a week apart, with the museum's own visitor counts.\n"
        "\n"
        "| | First morning | Second morning |\n"
        "|---|---|---|\n"
        "| 9:00 | open a notebook, run a cell, break it, run it again | what went wrong at work |\n"
        "| 9:40 | read the counts, look at ten rows | sums by month and by kind of ticket |\n"
        "| 10:20 | one chart | a chart for the director, from a copy of the notebook |\n"
        "\n"
        "**Room.** Nothing is installed: the notebooks run in the browser, from files on the museum's own web server. "
        "Work stays in the browser it was made in, so everybody keeps the same computer, and downloads the notebook "
        "before going home.\n"
        "\n"
        "**The day before** tick off the five points of the checklist of Full-Stack Engineer_1, on one of the twelve "
        "computers and not on yours."
    ),
    say("Researcher_1 knows the programme best and writes the invitation.")
    + call(
        "send_message_to_sub_agent",
        agent_id=1,
        message=(
            "Write the invitation to the course, half a page, for people who are afraid of it. Say what they will be "
            "able to do afterwards, and that nobody needs to know anything."
        ),
    ),
    say("I wait for the invitation."),
]

RESEARCHER = [
    until_message(
        say(
            "First what beginners stumble over: cells run out of order, a typing error whose message is in English, "
            "and the fear of breaking something. I check who prepares the computers."
        )
        + call("list_active_sub_agents")
    ),
    say(
        "The museum's counts take the place of my invented example, which also shortens the beginning: everybody "
        "knows these numbers. One thing I cannot settle myself, and I ask."
    )
    + call(
        "ask_master",
        question=(
            "May the half day be split into two mornings of two hours, a week apart? Beginners keep more of it when "
            "they have used it at work in between, but twelve people have to come twice. I would split it."
        ),
        question_id="ask_r_001",
    ),
    say(
        "The programme, two mornings of two hours, with the museum's counts.\n"
        "\n"
        "**First morning**\n"
        "\n"
        "- 9:00 Open a notebook, run a cell, break it on purpose, run it again. Takes care of the fear.\n"
        "- 9:40 Read `counts.csv`, look at ten rows, find the day with most visitors.\n"
        "- 10:20 One chart; then *Restart and Run All*. Takes care of cells that were run out of order.\n"
        "- 10:50 What to do at work until next week: add the days of this week.\n"
        "\n"
        "**Second morning**\n"
        "\n"
        "- 9:00 What went wrong at work, and how to read the last line of an error.\n"
        "- 9:40 Sums by month and by kind of ticket.\n"
        "- 10:20 A chart for the director, made in a copy of the notebook.\n"
        "\n"
        "Assumed: counts are one row for each day and kind of ticket. Beginners' difficulties are from memory, not "
        "from a study. Ten minutes are left free each morning; they will be needed."
    ),
    say("I begin with what people are afraid of, and look who could check the invitation.")
    + call("list_active_sub_agents"),
    until_message(say("Never said: the run is stopped before a message comes.")),
]

ENGINEER = [
    until_message(
        say("I begin with what must run on twelve computers, and who else counts on them.")
        + call("list_active_sub_agents")
    ),
    say("The question changes the checklist: nothing may be installed.")
    + call(
        "answer_master",
        question_id="ask_tl_001",
        answer=(
            "Nothing, then. JupyterLite is a Jupyter that runs inside the browser; the museum only has to put a folder "
            "of static files on its web server. Twelve browsers load it at once, so that is what I have to test, and "
            "every computer needs a browser of the last two years. I rewrite the checklist for this."
        ),
    ),
    until_message(
        say("Four of the five points stand. Before I write down the last one, I look whether anything has changed.")
        + call("list_active_sub_agents")
    ),
    say(
        "The checklist, for notebooks that run in the browser.\n"
        "\n"
        "1. The page opens on a computer of the museum, from its network. *Check:* the first cell of the example "
        "runs.\n"
        "2. It opens on twelve at once. *Check:* all twelve within a minute; else load it before people come.\n"
        "3. `counts.csv` is there. *Check:* the second cell shows ten rows.\n"
        "4. Work is kept until the second morning. It lies in the browser's own storage, on that computer, for "
        "that user. *Check:* close the browser, open it again, the change is there. A private window keeps "
        "nothing.\n"
        "5. Work can be taken along. *Check:* download the notebook, open it on another computer by upload.\n"
        "\n"
        "So everybody needs the same computer and login on both mornings; a sheet with names beside the computers "
        "is enough. Not checked: none of this was tried on the museum's computers."
    ),
]

script = ScriptedModel(
    {"Team Leader": LEADER, "Researcher_1": RESEARCHER, "Full-Stack Engineer_1": ENGINEER},
    key="scripted",
    tokens_per_second=60,
)
