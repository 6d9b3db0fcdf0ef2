"""A small file of every trace format: what it is called, and what is in it.

The contract of formats (tests/workloads/test_format_contract.py) runs over all of them.
"""

EXAMPLE_FILES = {
    "azure": (
        "conv.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n",
    ),
    "mooncake": (
        "conversation_trace.jsonl",
        '{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 3000, "input_length": 1100, "output_length": 7, "hash_ids": [0, 2, 3]}\n',
    ),
    "table": (
        "requests.csv",
        "arrival_s,prompt_tokens,output_tokens\n0,3,4\n1.5,5,6\n",
    ),
}
