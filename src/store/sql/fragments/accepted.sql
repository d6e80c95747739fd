current_setting('contextd.accepted', true) = 'yes'
