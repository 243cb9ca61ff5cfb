"""What a program may say to a consumer: settings, their spelling, and advice about those that will hurt later."""
