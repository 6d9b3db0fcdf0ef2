"""The highest rate that an engine sustains within a service level objective (kvsim capacity --slo).

objectives  from the text of an SLO to what is judged
search      a ladder of rates, and the highest rung on which something holds
steady      from the files of one run to one point: percentiles after the warm-up, queue, goodput
lines       which experiments' runs are searched, and how each is brought to a rate
rates       the points of one line, made as they are asked for
capacity    from the points of a line to its row
survey      all lines, one after the other
report      what is shown and written
"""
