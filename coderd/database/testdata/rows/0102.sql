UPDATE template_version_presets SET prebuilds_invalidated_at = now() WHERE prebuilds IS NOT NULL;
