"""Facts, no judgement: the frozen values that every other part of the engine passes around."""
