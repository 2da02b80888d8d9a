"""What every service process needs: settings, health, signals, Arrow's memory."""
