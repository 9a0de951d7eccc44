"""Who runs the units of work: one module per engine, each giving the same results for the same plan."""
