"""How good retrieval is, measured on judged questions: figures with intervals, and losses."""
