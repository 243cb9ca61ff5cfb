"""The page: watch a rebalance happen.

    story      trace records in, the whole history out as plain lists: what the page and the picture draw
    lanes      … of every partition: who works on it, or why nobody does, and its lag
    people     … of every member: joining, in the group, hung, out, gone
    rounds     … of the coordinator, and the rebalances with cause and culprit
    steps      … in words, one line a step
    pseudo     the code that runs, in a few lines, and which line is at work
    names      whose member id that is
    svg        a story at one moment as a picture
    questions  what one may ask at a moment, and the answer with its numbers
    app        the server: needs the extra `ui` (starlette, uvicorn); nothing else here does

Everything up to `app` is pure. The rules of what is dark and why stand here and nowhere else: the page's modules
(`static/`) only draw what a story says.
"""
