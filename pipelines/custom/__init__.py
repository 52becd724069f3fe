"""Custom blocks: state that an application's own code folds."""
