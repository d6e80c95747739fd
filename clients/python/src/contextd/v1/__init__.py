"""The messages and stubs of the API, generated from proto/. `script/clients python` makes them."""
