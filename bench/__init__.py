"""What Tidelock claims about speed, as commands that print ratios measured in one run."""
