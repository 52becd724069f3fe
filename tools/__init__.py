"""Tools of whoever changes Strandline; nothing here is packaged."""
