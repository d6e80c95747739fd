set_config('contextd.accepted', 'yes', true) as accepted
