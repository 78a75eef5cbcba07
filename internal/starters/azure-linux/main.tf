# A workspace is a Linux machine on Azure. Stopping the workspace deletes the machine; the home folder is a disk, which outlives it.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.0"
    }
    tls = {
      source  = "hashicorp/tls"
      version = "~> 4.0"
    }
  }
}

variable "subscription_id" {
  description = "The Azure subscription of workspaces."
  type        = string
}

data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "region" {
  name         = "region"
  display_name = "Region"
  description  = "Where the machine is."
  default      = "eastus"
  mutable      = false
  order        = 1

  option {
    name  = "East US"
    value = "eastus"
  }
  option {
    name  = "West US 2"
    value = "westus2"
  }
  option {
    name  = "West Europe"
    value = "westeurope"
  }
  option {
    name  = "Germany West Central"
    value = "germanywestcentral"
  }
  option {
    name  = "Central India"
    value = "centralindia"
  }
  option {
    name  = "Southeast Asia"
    value = "southeastasia"
  }
}

data "coder_parameter" "size" {
  name         = "size"
  display_name = "Machine"
  description  = "How large the machine is."
  default      = "Standard_D2s_v5"
  mutable      = true
  order        = 2

  option {
    name  = "2 CPUs, 4 GiB"
    value = "Standard_B2s"
  }
  option {
    name  = "2 CPUs, 8 GiB"
    value = "Standard_D2s_v5"
  }
  option {
    name  = "4 CPUs, 16 GiB"
    value = "Standard_D4s_v5"
  }
  option {
    name  = "8 CPUs, 32 GiB"
    value = "Standard_D8s_v5"
  }
}

data "coder_parameter" "disk" {
  name         = "disk"
  display_name = "Disk (GiB)"
  description  = "The size of the home folder. It can grow later."
  type         = "number"
  form_type    = "slider"
  default      = 30
  mutable      = true
  order        = 3

  validation {
    min       = 10
    max       = 1000
    monotonic = "increasing"
  }
}

data "coder_parameter" "spot" {
  name         = "spot"
  display_name = "Spot"
  description  = "Costs less, but Azure may take the machine away at any time. The home folder stays."
  type         = "bool"
  form_type    = "switch"
  default      = false
  mutable      = true
  order        = 4
}

data "coder_workspace_preset" "small" {
  name    = "Small"
  default = true
  parameters = {
    size = "Standard_B2s"
    disk = "30"
    spot = "false"
  }
}

data "coder_workspace_preset" "large" {
  name = "Large"
  parameters = {
    size = "Standard_D8s_v5"
    disk = "100"
    spot = "false"
  }
}

data "coder_workspace_preset" "spot" {
  name = "Large, spot"
  parameters = {
    size = "Standard_D8s_v5"
    disk = "100"
    spot = "true"
  }
}

# The machine proves who it is with a document that the cloud signs: no token is in its user data, which every program there can read.
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  auth = "azure-instance-identity"

  env = {
    GIT_AUTHOR_NAME     = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_AUTHOR_EMAIL    = data.coder_workspace_owner.me.email
    GIT_COMMITTER_NAME  = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_COMMITTER_EMAIL = data.coder_workspace_owner.me.email
  }

  metadata {
    key          = "load"
    display_name = "Load"
    script       = "cut -d' ' -f1-3 /proc/loadavg"
    interval     = 10
    timeout      = 1
  }
  metadata {
    key          = "disk"
    display_name = "Home folder"
    script       = "df -h \"$HOME\" | awk 'END { print $3 \" of \" $2 }'"
    interval     = 60
    timeout      = 5
  }
}

# The disk is detached before the machine ends: what programs wrote must be on it by then.
resource "coder_script" "flush" {
  agent_id     = coder_agent.main.id
  display_name = "Write to the disk"
  icon         = "/icon/database.svg"
  run_on_stop  = true
  script       = "sync"
}

locals {
  # A name without the owner: a prebuilt workspace keeps its machine when it gets one.
  name = "coder-${data.coder_workspace.me.id}"

  # cloud-init makes the account, and a service that starts the agent at every boot.
  cloud_config = "#cloud-config\n${yamlencode({
    users = [{
      name        = "coder"
      uid         = 1000
      shell       = "/bin/bash"
      sudo        = "ALL=(ALL) NOPASSWD:ALL"
      lock_passwd = true
    }]
    write_files = [
      { path = "/opt/coder/agent", permissions = "0755", content = coder_agent.main.init_script },
      { path = "/opt/coder/home", permissions = "0755", content = local.home_script },
      { path = "/etc/systemd/system/coder-home.service", content = local.home_unit },
      { path = "/etc/systemd/system/coder-agent.service", content = local.agent_unit },
    ]
    runcmd = [
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "--no-block", "coder-agent.service"],
    ]
  })}"

  agent_unit = <<-EOT
    [Unit]
    Description=Coder agent
    Wants=network-online.target
    Requires=coder-home.service
    After=network-online.target coder-home.service

    [Service]
    User=coder
    WorkingDirectory=/home/coder
    ExecStart=/opt/coder/agent
    Restart=always
    RestartSec=5

    [Install]
    WantedBy=multi-user.target
  EOT

  home_unit = <<-EOT
    [Unit]
    Description=Home folder on a disk of its own

    [Service]
    Type=oneshot
    RemainAfterExit=yes
    TimeoutStartSec=infinity
    ExecStart=/opt/coder/home
  EOT

  # The disk arrives after the machine has started. Only one that begins with zeros, as new ones do, gets a file system.
  home_script = <<-EOT
    #!/bin/sh
    set -eu
    # Machines whose disks are NVMe ones have them elsewhere.
    disk=
    while [ -z "$disk" ]; do
      for name in /dev/disk/azure/scsi1/lun10 /dev/disk/azure/data/by-lun/10; do
        if [ -b "$name" ]; then disk=$name; fi
      done
      sleep 1
    done
    if cmp -s -n 1048576 "$disk" /dev/zero; then
      mkfs.ext4 -q -L home "$disk"
      mount "$disk" /home/coder
      cp -r /etc/skel/. /home/coder
      chown -R coder:coder /home/coder
    else
      e2fsck -p "$disk" || [ $? -lt 4 ]
      mount "$disk" /home/coder
      resize2fs "$disk"
    fi
  EOT
}

# The provider takes the service principal from ARM_CLIENT_ID, ARM_TENANT_ID and ARM_CLIENT_SECRET_FILE_PATH.
provider "azurerm" {
  subscription_id = var.subscription_id

  features {}
}

resource "azurerm_resource_group" "workspace" {
  name     = local.name
  location = data.coder_parameter.region.value
}

resource "azurerm_virtual_network" "workspace" {
  name                = "network"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name
  address_space       = ["10.0.0.0/24"]
}

resource "azurerm_subnet" "workspace" {
  name                 = "subnet"
  resource_group_name  = azurerm_resource_group.workspace.name
  virtual_network_name = azurerm_virtual_network.workspace.name
  address_prefixes     = ["10.0.0.0/24"]
}

# The agent connects to the server: nothing needs a port here, and none is open.
resource "azurerm_network_security_group" "closed" {
  name                = "closed"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name

  security_rule {
    name                       = "closed"
    priority                   = 100
    direction                  = "Inbound"
    access                     = "Deny"
    protocol                   = "*"
    source_port_range          = "*"
    source_address_prefix      = "*"
    destination_port_range     = "*"
    destination_address_prefix = "*"
  }
}

# The way out. Azure charges for it as long as it exists, so it ends with the machine.
resource "azurerm_public_ip" "workspace" {
  count               = data.coder_workspace.me.start_count
  name                = "address"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name
  sku                 = "Standard"
  allocation_method   = "Static"
}

resource "azurerm_network_interface" "workspace" {
  count               = data.coder_workspace.me.start_count
  name                = "interface"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name

  ip_configuration {
    name                          = "address"
    subnet_id                     = azurerm_subnet.workspace.id
    private_ip_address_allocation = "Dynamic"
    public_ip_address_id          = azurerm_public_ip.workspace[0].id
  }
}

resource "azurerm_network_interface_security_group_association" "closed" {
  count                     = data.coder_workspace.me.start_count
  network_interface_id      = azurerm_network_interface.workspace[0].id
  network_security_group_id = azurerm_network_security_group.closed.id
}

resource "azurerm_managed_disk" "home" {
  name                 = "home"
  location             = azurerm_resource_group.workspace.location
  resource_group_name  = azurerm_resource_group.workspace.name
  storage_account_type = "StandardSSD_LRS"
  create_option        = "Empty"
  disk_size_gb         = data.coder_parameter.disk.value

  # The disk holds people's work: no change of the template may replace it.
  lifecycle {
    ignore_changes = [name, location, resource_group_name, storage_account_type, create_option]
  }
}

# Azure wants a key for the machine's account. Nothing uses it: no port is open.
resource "tls_private_key" "unused" {
  algorithm = "RSA"
  rsa_bits  = 4096
}

resource "azurerm_linux_virtual_machine" "workspace" {
  count                 = data.coder_workspace.me.start_count
  name                  = "workspace"
  computer_name         = local.name
  location              = azurerm_resource_group.workspace.location
  resource_group_name   = azurerm_resource_group.workspace.name
  size                  = data.coder_parameter.size.value
  network_interface_ids = [azurerm_network_interface.workspace[0].id]
  priority              = data.coder_parameter.spot.value ? "Spot" : "Regular"
  eviction_policy       = data.coder_parameter.spot.value ? "Deallocate" : null
  admin_username        = "coder"
  custom_data           = base64gzip(local.cloud_config)
  tags                  = { workspace = data.coder_workspace.me.id, owner = data.coder_workspace_owner.me.name }

  admin_ssh_key {
    username   = "coder"
    public_key = tls_private_key.unused.public_key_openssh
  }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "StandardSSD_LRS"
  }

  source_image_reference {
    publisher = "Canonical"
    offer     = "ubuntu-24_04-lts"
    sku       = "server"
    version   = "latest"
  }

  # Tags follow at the next start, which makes a new machine.
  lifecycle {
    ignore_changes = [tags]
  }

  depends_on = [azurerm_network_interface_security_group_association.closed]
}

resource "azurerm_virtual_machine_data_disk_attachment" "home" {
  count              = data.coder_workspace.me.start_count
  managed_disk_id    = azurerm_managed_disk.home.id
  virtual_machine_id = azurerm_linux_virtual_machine.workspace[0].id
  lun                = 10
  caching            = "None"
}
