"""`tidelock stream`: stream tables changed, and stream tables shown."""
