"""The verdicts on claims, and what each says."""

CONFIRMED = "confirmed"
FITTED = "confirmed with a fitted parameter"
DIRECTION = "direction only"
NOT_REPRODUCED = "not reproduced"
REFUTED = "refuted"
VACUOUS = "holds vacuously"
NO_DATA = "data not available here"
OUT_OF_SCOPE = "out of scope"

VERDICTS = {
    CONFIRMED: "the measured value is within the claim's tolerance",
    FITTED: "likewise, but a parameter was fitted to the claim's source, and is named",
    DIRECTION: "the order or the sign is as claimed, the size is not",
    NOT_REPRODUCED: "a simulation or a trace gives another value",
    REFUTED: "the claim's own numbers, or the code it speaks of, say otherwise",
    VACUOUS: "true, but nothing could have made it false",
    NO_DATA: "the trace that it is about has to be fetched first",
    OUT_OF_SCOPE: "nothing that a simulator of memory can measure",
}
