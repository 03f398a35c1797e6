"""Many agents at work: delegation, workflows, triggers, the autonomous loop."""
