"""Statistics behind the pages' verdicts: how sure a label is, and whether two methods differ. numpy and stdlib only."""
