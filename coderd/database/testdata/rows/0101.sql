UPDATE organizations SET sharing_disabled = true WHERE NOT is_default;
