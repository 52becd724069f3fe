"""Items: values that an application keeps under a path and a key, in the store of a namespace."""
