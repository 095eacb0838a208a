"""Plans in the words of training frameworks: settings on screen, and files that run."""
