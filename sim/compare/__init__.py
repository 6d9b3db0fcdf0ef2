"""Two experiments side by side, from their files alone (kvsim compare).

metrics        which direction of a metric is the better one, and which are shown
sides          a folder of results, or a part of one
matching       which rows of one side belong to which of the other
significance   sign flips, permutations, and Holm's correction
stretches      one run each: their requests in pairs, averaged over stretches of the run
comparison     from two sides to one row a point and metric
verdicts       what the rows say, in words
report         what is shown and written
"""
