"""What each route is asked and how it answers, for both clients: functions that make a Call, no more."""
