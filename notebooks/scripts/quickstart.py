"""Who says what in ``quickstart.ipynb``: three agents prepare a booking page for a library.

The Researcher asks the leader, the UI Operator asks the engineer, three reports come back one after
the other. ``record.py`` plays this into the cassette; the tempo decides who is done first.
"""

from __future__ import annotations

from astrion_nb.testing import ScriptedModel, call, say, until_message

LEADER = [
    say(
        "Three parts that do not have to wait for each other, so three agents start now: one for the page, "
        "one for the interface between page and server, one for the booking rules."
    )
    + call(
        "create_sub_agent",
        agent_id=1,
        role_id="ui-operator",
        task=(
            "Design the page on which visitors of a town library reserve one of its four study rooms, numbered 1 to "
            "4. Visitors come with a phone more often than with a computer, and many use the page once a year. "
            "Describe the steps, what stands on each, and the states that go wrong. Full-Stack Engineer_1 defines the "
            "interface to the server, Researcher_1 the booking rules; both work at the same time. Report the steps "
            "and the texts of every message that a visitor can see."
        ),
    )
    + call(
        "create_sub_agent",
        agent_id=1,
        role_id="full-stack-engineer",
        task=(
            "Define the interface between a page and a server for reserving one of four study rooms, numbered 1 to 4, "
            "of a town library. Visitors identify themselves with the number of their library card. Two visitors may "
            "ask for the same room at the same moment. UI Operator_1 designs the page and builds on your interface. "
            "Report the routes, the fields with their types, and every error with its cause."
        ),
    )
    + call(
        "create_sub_agent",
        agent_id=1,
        role_id="researcher",
        task=(
            "Which rules do small public libraries set for reserving study rooms: how long, how far ahead, how often, "
            "what happens when nobody comes? Report one recommended set of rules for four rooms, a reason for each "
            "rule, and how sure you are. You have no tool to look anything up: say so, and label what you know from "
            "memory."
        ),
    ),
    say("The three are at work. I wait for their reports."),
    say("Researcher_1 needs a fact that the task settles.")
    + call(
        "answer_sub_agent_question",
        agent_id=3,
        question_id="ask_r_001",
        answer="Only visitors with a library card may reserve. Leave visitors without a card out; the desk helps them.",
    ),
    say("Answered. The page and the interface are still being worked on."),
    say("The rules are in: two hours, seven days ahead. I wait for the interface and the page."),
    say(
        "## Plan for the room booking page\n"
        "\n"
        "All three parts are ready and fit together.\n"
        "\n"
        "**Rules.** A card holder reserves one room for at most two hours, at most seven days ahead, and holds one "
        "open reservation at a time. A room is released when nobody has come 15 minutes after the start.\n"
        "\n"
        "**Page.** Three steps: choose day and time, choose a free room, enter the card number. The confirmation "
        "shows a short code for the door list and for cancelling.\n"
        "\n"
        "**Interface.**\n"
        "\n"
        "| Route | Does |\n"
        "|---|---|\n"
        "| `GET /slots?day=` | which rooms are free, in half hours |\n"
        "| `POST /reservations` | reserves; of two at once, one wins |\n"
        "| `POST /reservations/{code}/cancel` | cancels |\n"
        "\n"
        "**On Monday** begin with `GET /slots` and step 1 of the page: they need nothing else.\n"
        "\n"
        "**Open, for you to decide.** Whether the card number is enough, or its PIN is asked for too: "
        "Full-Stack Engineer_1 points out that whoever knows a number can cancel under it. And the rules come from "
        "memory; ask two neighbouring libraries before they are printed."
    ),
]

UI_OPERATOR = [
    say("The flow comes first: day and time, room, card. I look up who defines the data behind it.")
    + call("list_active_sub_agents"),
    say(
        "I ask Full-Stack Engineer_1 how times are given and what comes back when a room has just been taken, "
        "because both change step 2."
    )
    + call(
        "ask_other_agent",
        target_agent_id=2,
        content=(
            "Two questions for the booking page. Are times given as free intervals or as fixed slots? And what does "
            "the server answer when a room was free on the page and is taken a second later? I would show half-hour "
            "slots and offer the other free rooms of the same time."
        ),
        message_id="ask_uio_001",
    ),
    say(
        "The page is designed.\n"
        "\n"
        "1. **When?** Seven days as large buttons, below them the half hours of the chosen day. What is full is "
        "struck through and says *full*; colour alone would not be seen by everybody.\n"
        "2. **Which room?** The free rooms of that time, each with its number of seats.\n"
        "3. **Who?** One field, the number on the library card, and the button *Reserve room 2, Tue 14:00*: it says "
        "what will happen.\n"
        "\n"
        "Afterwards the code stands alone on the page, large enough to be photographed.\n"
        "\n"
        "Messages:\n"
        "\n"
        "- room taken meanwhile: *Room 2 was taken a moment ago. At 14:00, rooms 1 and 4 are free.* (the answer to "
        "`409` lists them)\n"
        "- card unknown: *We do not know this card. Check the number below the bar code, or ask at the desk.*\n"
        "- second reservation: *You already have room 3 on Friday at 10:00. Cancel it first?*\n"
        "- no connection: *Nothing was reserved. Try again when you are online.*\n"
        "\n"
        "Assumed: times are those of the library. Not done: nothing was built or tried with visitors."
    ),
    say(
        "The half hours in step 1. Sixteen to twenty buttons fit a phone only with scrolling, and a list of free "
        "times, *14:00, 15:30*, may be faster for somebody who comes once a year. I would put both on paper before "
        "one of them is built, and watch five visitors use them."
    ),
]

ENGINEER = [
    until_message(
        say(
            "Three tables carry it: rooms, reservations, and the half hours that a reservation takes. There a unique "
            "key on room, day and half hour decides between two visitors who ask at the same moment. Before I fix the "
            "routes, I check who builds on them."
        )
        + call("list_active_sub_agents")
    ),
    say("UI Operator_1 asks about slots and about a room that has just been taken; I answer before I go on.")
    + call(
        "answer_other_agent",
        source_agent_id=1,
        message_id="ask_uio_001",
        answer=(
            'Fixed half-hour slots, as local times such as "14:00". A room that was taken meanwhile is 409 with the '
            'body {"error": "taken", "free_rooms": [1, 4]}, so the page can offer them without asking again.'
        ),
    ),
    say(
        "The interface, agreed with UI Operator_1.\n"
        "\n"
        "| Route | Request | Answer |\n"
        "|---|---|---|\n"
        '| `GET /slots?day=2026-03-03` | – | `{"slots": [{"start": "14:00", "free_rooms": [1, 4]}]}` |\n'
        '| `POST /reservations` | `{"room": 2, "day": "2026-03-03", "start": "14:00", "half_hours": 4, '
        '"card": "0042917"}` | `201 {"code": "K7Q2"}` |\n'
        '| `POST /reservations/{code}/cancel` | `{"card": "0042917"}` | `204` |\n'
        "\n"
        "Errors: `404 card` unknown card, `409 taken` with `free_rooms`, `409 has_one` with the open reservation, "
        "`422 rule` with the name of the rule that was broken, `404 code` unknown code. Days are ISO dates, times are "
        "the library's own.\n"
        "\n"
        "`card` is a string, since leading zeros count. A reservation writes one row for each half hour in one "
        "transaction; of two for the same half hour the unique key lets one through, the other gets `409`.\n"
        "\n"
        "Open: a card number is no secret, and whoever knows it can reserve and cancel under it. Asking for the "
        "card's PIN too would be one more field. Not done: nothing was run."
    ),
]

RESEARCHER = [
    say(
        "The rules hang on one thing that the task leaves open: who may reserve at all. Where visitors cannot be told "
        "from each other, no limit for each of them can be kept, and half of what libraries usually write down is of "
        "no use. So I ask before I go on."
    )
    + call(
        "ask_master",
        question=(
            "May visitors without a library card reserve a room? I would leave them out: without a card nobody can "
            "be told from somebody else, and a limit per person cannot be kept."
        ),
        question_id="ask_r_001",
    ),
    say(
        "Recommended, with medium certainty: from memory, no source could be opened.\n"
        "\n"
        "1. **Two hours at most, in half hours.** Long enough for a study group, and several groups fit into a day.\n"
        "2. **Seven days ahead.** Longer windows fill with reservations that nobody keeps.\n"
        "3. **One open reservation per card.** The simplest limit that needs no accounts.\n"
        "4. **Released 15 minutes after the start** when nobody has come; the desk ticks who is there.\n"
        "5. **Cancelling is possible until the start** and costs nothing: a cancelled room can be used, an empty "
        "one cannot.\n"
        "\n"
        "Against rule 3: families share cards. Should that become a complaint, allow two per card before accounts "
        "are introduced. Not covered: fees, and who may bring food."
    ),
]

script = ScriptedModel(
    {
        "Team Leader": LEADER,
        "UI Operator_1": UI_OPERATOR,
        "Full-Stack Engineer_1": ENGINEER,
        "Researcher_1": RESEARCHER,
    },
    key="scripted",
    tokens_per_second=60,
)
