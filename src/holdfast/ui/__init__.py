"""The page: watch a rebalance happen.

    story      trace records in, the whole history out as plain lists: what the page and the picture draw
    lanes      … of every partition: who works on it, or why nobody does, and its lag
    people     … of every member: joining, in the group, hung, out, gone
    rounds     … of the coordinator, and the rebalances with cause and culprit
    steps      … in words, one line per step
    pseudo     the running code, shortened to a few lines, and which line is active
    names      short names for member ids
    svg        a story at one moment as a picture
    questions  questions about a moment, and their answers with numbers
    app        the server: needs the extra `ui` (starlette, uvicorn); nothing else here does

Everything before `app` is pure. The rules for when a partition is dark, and why, are only here: the page's modules
(`static/`) just draw a story.
"""
