"""What every service process has: settings, health, signals, Arrow's memory."""
