"""What both faces share: no sockets, no threads, no clock."""
